"""What users import: speaks HTTP, needs none of the server's libraries."""
