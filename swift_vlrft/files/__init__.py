"""Reading and writing files, and the files that the package brings."""
