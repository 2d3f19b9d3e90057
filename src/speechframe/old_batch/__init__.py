"""Many rows: plan, send, store; one file a verb, and one engine for all of them."""
