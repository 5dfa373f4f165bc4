"""Studies whose figures stand in the documents: short scripts, run by hand."""
