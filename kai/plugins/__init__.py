"""Built-in plugins; reached only through entry points, like all plugins."""
