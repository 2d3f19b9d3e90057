"""What people do with a table: each verb is a function and the backend behind it."""
