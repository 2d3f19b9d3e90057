"""Write and read the folder of a run, which contains its table, its results and its costs."""
