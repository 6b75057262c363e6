"""Small models of controllers: what each would make of its workload at this moment. Start reading at ``table``."""
