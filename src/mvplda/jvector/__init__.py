"""From frames to one vector an utterance: networks trained on several labels at once."""
