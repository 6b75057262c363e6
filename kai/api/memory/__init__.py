"""Memory of a process that holds very many objects: the collector, the allocator, pages of a library."""
