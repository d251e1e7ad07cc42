"""What the stand-in answers: as agent, reflector, aggregator, summariser, writer."""
