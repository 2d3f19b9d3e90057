"""Whatever people call a table, as Arrow batches with an id for each row."""
