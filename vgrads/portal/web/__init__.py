"""People at a browser, and programs: REST, pages, figures."""
