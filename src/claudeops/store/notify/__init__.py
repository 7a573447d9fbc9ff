"""What is to be sent: notices that wait, and questions in chats."""
