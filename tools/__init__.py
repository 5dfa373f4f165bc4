"""Programs that make the files which the package ships: models, clients, synthetic voices."""
