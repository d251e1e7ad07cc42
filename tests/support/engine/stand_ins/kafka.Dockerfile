# For tests only, where apache/kafka cannot be pulled: the jars that the embedded broker runs, and Kafka's own start of
# its container (kafka.docker.KafkaDockerWrapper), laid out as in the official image.
FROM combee-test-python
RUN useradd --uid 1000 --no-create-home appuser \
 && mkdir -p /var/lib/kafka/data /opt/kafka/config /etc/kafka/docker /mnt/shared/config \
 && chown -R appuser /var/lib/kafka /opt/kafka/config
COPY jars /opt/kafka/libs
COPY java /opt/java
COPY kafka-run /etc/kafka/docker/run
COPY server.properties log4j2.yaml tools-log4j2.yaml /etc/kafka/docker/
USER appuser
VOLUME /var/lib/kafka/data
ENTRYPOINT ["bash", "/etc/kafka/docker/run"]
