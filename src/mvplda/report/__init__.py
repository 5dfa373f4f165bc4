"""Pictures of scores, and the page that holds them."""

from .page import Report, write_report

__all__ = ["Report", "write_report"]
