"""Training and evaluation of the detector of replayed and resynthesised voices."""
