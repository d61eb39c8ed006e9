"""Read and write files, and find the files shipped with the package."""
