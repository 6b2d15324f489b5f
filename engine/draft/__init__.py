"""Ways to draft, one file each; `routes.py` is the only file that names them all."""
