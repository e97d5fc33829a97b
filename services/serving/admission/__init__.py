"""Who gets how much of what is limited: clients, their shares, answers that nobody takes, descriptors."""
