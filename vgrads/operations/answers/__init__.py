"""What each request is answered with: one module per subject, read by interfaces when they are
described, never when a command or a service starts. A field with a default may be absent."""
