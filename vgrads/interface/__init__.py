"""What Python programs and notebooks import: ``import vgrads``. No service and no database."""
