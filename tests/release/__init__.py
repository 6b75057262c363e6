"""What a release consists of: packages that are built twice, their provenance, and signatures that users verify."""
