"""What a trained model is worth: its predictions against exact posteriors."""
