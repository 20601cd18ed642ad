"""What an agent does because of messages that are more than words: it ends, answers for itself, and asks."""
