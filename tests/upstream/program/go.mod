module kai/tests/upstream

go 1.26.0
