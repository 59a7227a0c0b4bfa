"""Networks that people bring, and that nobody here trains: their files, running them, images and sentences for them."""
