"""Small models of controllers: the objects that each would create for its workload now. Start reading at ``table``."""
