"""DataFrames in, speech datasets out."""
