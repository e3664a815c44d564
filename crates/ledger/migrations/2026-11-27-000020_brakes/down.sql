DROP TABLE brakes;
