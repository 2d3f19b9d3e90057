"""One call of one service, in one attempt or as many as it takes."""
