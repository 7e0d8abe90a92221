CREATE TABLE customers (email TEXT PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE orders (
    order_id TEXT PRIMARY KEY, email TEXT NOT NULL REFERENCES customers (email),
    status TEXT NOT NULL, placed_on TEXT NOT NULL, delivered_on TEXT,
    address TEXT NOT NULL, shipping_fee REAL NOT NULL, total REAL NOT NULL);
CREATE TABLE items (
    order_id TEXT NOT NULL REFERENCES orders (order_id), product TEXT NOT NULL,
    category TEXT NOT NULL, price REAL NOT NULL, in_stock INTEGER NOT NULL);
CREATE TABLE shipments (
    order_id TEXT PRIMARY KEY REFERENCES orders (order_id), carrier TEXT NOT NULL,
    status TEXT NOT NULL, location TEXT NOT NULL, expected_on TEXT NOT NULL);
CREATE TABLE payments (
    payment_id TEXT PRIMARY KEY, order_id TEXT NOT NULL REFERENCES orders (order_id),
    amount REAL NOT NULL);
CREATE TABLE tickets (
    ticket_id TEXT PRIMARY KEY, subject TEXT NOT NULL, status TEXT NOT NULL,
    opened_on TEXT NOT NULL);
CREATE TABLE policies (
    category TEXT NOT NULL, reason TEXT NOT NULL, window_days INTEGER NOT NULL,
    PRIMARY KEY (category, reason));
CREATE TABLE knowledge_base (
    topic TEXT PRIMARY KEY, title TEXT NOT NULL, body TEXT NOT NULL);
CREATE TABLE refunds (order_id TEXT NOT NULL, amount REAL NOT NULL);
CREATE TABLE replacements (order_id TEXT NOT NULL);
CREATE TABLE escalations (reason TEXT NOT NULL);
CREATE TABLE password_resets (email TEXT NOT NULL);
CREATE TABLE invoices_sent (order_id TEXT NOT NULL, email TEXT NOT NULL);
CREATE TABLE subscriptions (
    email TEXT NOT NULL, channel TEXT NOT NULL, subscribed INTEGER NOT NULL,
    PRIMARY KEY (email, channel));
