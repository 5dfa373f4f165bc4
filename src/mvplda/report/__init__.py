"""Pictures of scores, and the page that holds them."""
