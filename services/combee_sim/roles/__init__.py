"""What the stand-in answers: as agent, reflector, aggregator, checker, summariser, writer."""
