"""The pages, one in each module: reads the URL's parameters, calls the gateway, makes values for the template and JSON."""
