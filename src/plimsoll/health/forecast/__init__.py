"""How many nodes will be healthy: the methods, the back-test that compares them, and the common-cause reserve."""
