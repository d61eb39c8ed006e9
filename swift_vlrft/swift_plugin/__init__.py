"""The only folder that imports swift: puts rewards and data sets into ms-swift's registries."""
