"""Put rewards and data sets into ms-swift's registries; only this folder imports swift."""
