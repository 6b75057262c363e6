"""Reports for operators. Read `signals` first: metrics and log lines are made of them."""
