"""scikit-learn estimators, thin over the kernel."""
