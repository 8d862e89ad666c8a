"""How the tables of the run store came to be, as alembic revisions."""
