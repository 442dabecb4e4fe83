"""Reading stored records with plain queries, without the classes of the tables."""
