"""The products: plug-ins around the kernel. The kernel imports none of them."""
