"""Reading and writing files, and the files shipped with the package."""
