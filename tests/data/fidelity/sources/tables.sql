-- What is sold (it's all here).
CREATE TABLE sold (
    id integer PRIMARY KEY,
    name text NOT NULL DEFAULT '',
    price numeric(10, 2)
);

INSERT INTO sold (id, name, price) VALUES
    (1, 'tea', 3.00),
    (2, 'it''s free', 0.00);

SELECT s.name, count(*) AS many
FROM sold AS s
WHERE s.name LIKE '%)%' AND s.price IN (0, 1, 2)
GROUP BY s.name
ORDER BY many DESC;
