"""What is promised: load line, alignment, flex, haircut, requests and transfers."""
