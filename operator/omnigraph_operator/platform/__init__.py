"""What carries actions out: API objects (`kubernetes`) or processes (`local`)."""
