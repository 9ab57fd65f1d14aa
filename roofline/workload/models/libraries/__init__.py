"""The libraries whose models have names: torchvision, timm and transformers, in this order."""
