"""Do bags with deadlines keep their promises, and at what cost?"""
