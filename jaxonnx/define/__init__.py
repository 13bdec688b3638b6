"""What operators are written with: their table, schemas, derivatives and known values."""
