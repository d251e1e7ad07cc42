"""The messages of Combee, their wire codec and the topic map."""
